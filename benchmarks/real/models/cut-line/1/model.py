"""Cuts what the detector takes for text out of an image, at the size that the classifier takes."""

import numpy as np
import triton_python_backend_utils as pb

HEIGHT, WIDTH = 48, 192
TEXT = 0.3  # the detector's own threshold


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            images = pb.get_input_tensor_by_name(request, "image").as_numpy()
            maps = pb.get_input_tensor_by_name(request, "map").as_numpy()
            lines = np.stack([cut(image, of[0]) for image, of in zip(images, maps, strict=True)])
            answers.append(pb.InferenceResponse([pb.Tensor("line", lines)]))
        return answers


def cut(image, probabilities):
    """The box around all text, or the whole image where there is none, by nearest neighbours."""
    ys, xs = np.nonzero(probabilities > TEXT)
    if not len(ys):
        ys, xs = (np.arange(size) for size in probabilities.shape)
    rows = np.linspace(ys.min(), ys.max(), HEIGHT).round().astype(int)
    columns = np.linspace(xs.min(), xs.max(), WIDTH).round().astype(int)
    return image[:, rows[:, None], columns]
