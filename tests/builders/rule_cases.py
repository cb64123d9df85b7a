"""Configs that break one rule each, and near ones that do not: for unit tests and for Triton."""

from __future__ import annotations

from tuner.modelconfig.rules import Rule

GROUP = "instance_group { %s }"
DYNAMIC = "dynamic_batching { %s }"
POLICY = "default_queue_policy { %s }"

#: rule, path of the violation, config that breaks it, one that is as near as can be and does not
TENSOR = 'input { name: "z" data_type: TYPE_FP32 %s }'
CONTROL = "sequence_batching { %s }"
BATCH = 'batch_input { target_name: "t" %s }'
SCATTER = "batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE %s }"
START = 'control_input { name: "S" control { kind: CONTROL_SEQUENCE_START %s } }'
CORRID = 'control_input { name: "C" control { kind: CONTROL_SEQUENCE_CORRID %s } }'
WARMUP = 'model_warmup { name: "w" batch_size: %d %s }'
VALUES = 'inputs { key: "%s" value { data_type: TYPE_%s dims: %s zero_data: true } }'
ZEROS = VALUES % ("x", "FP32", 4)
STATE = (
    'sequence_batching { state { input_name: "s" output_name: "t" data_type: TYPE_FP32 dims: 2 '
    'initial_state { name: "i" zero_data: true data_type: %s dims: %s } } }'
)
FORCE = 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "%s" } }'
FALSE_TRUE = "int32_false_true: [ 0, 1 ]"
REFUSED = [
    (Rule.NO_VERSION, "version_policy",
     "version_policy { latest { } }", "version_policy { latest { num_versions: 2 } }"),
    (Rule.NO_VERSION, "version_policy",
     "version_policy { specific { } }", "version_policy { }"),
    (Rule.PREFERRED_BATCH_SIZE, "dynamic_batching.preferred_batch_size",
     DYNAMIC % "preferred_batch_size: [ 4, 9 ]", DYNAMIC % "preferred_batch_size: [ 4, 8 ]"),
    (Rule.PREFERRED_BATCH_SIZE, "dynamic_batching.preferred_batch_size",
     DYNAMIC % "preferred_batch_size: 0", DYNAMIC % "preferred_batch_size: 1"),
    (Rule.PREFERRED_BATCH_SIZE, "sequence_batching.oldest.preferred_batch_size",
     "sequence_batching { oldest { preferred_batch_size: 9 } }",
     "sequence_batching { oldest { preferred_batch_size: 8 } }"),
    (Rule.PRIORITY_LEVEL, "dynamic_batching.default_priority_level",
     DYNAMIC % "priority_levels: 2", DYNAMIC % "priority_levels: 2 default_priority_level: 2"),
    (Rule.PRIORITY_LEVEL, "dynamic_batching.default_priority_level",
     DYNAMIC % "priority_levels: 2 default_priority_level: 3", DYNAMIC % ""),
    (Rule.PRIORITY_LEVEL, "dynamic_batching.priority_queue_policy[3]",
     DYNAMIC % "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 }",
     DYNAMIC % "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 2 }"),
    (Rule.PRESERVE_ORDERING, "dynamic_batching.preserve_ordering",
     DYNAMIC % "preserve_ordering: true priority_levels: 2 default_priority_level: 1",
     DYNAMIC % "preserve_ordering: true priority_levels: 1 default_priority_level: 1"),
    (Rule.PRESERVE_ORDERING, "dynamic_batching.default_queue_policy.timeout_action",
     DYNAMIC % ("preserve_ordering: true "
                + POLICY % "timeout_action: DELAY default_timeout_microseconds: 9"),
     DYNAMIC % ("preserve_ordering: true " + POLICY % "timeout_action: DELAY")),
    (Rule.PRESERVE_ORDERING, "dynamic_batching.priority_queue_policy[1].timeout_action",
     DYNAMIC % ("preserve_ordering: true priority_levels: 1 default_priority_level: 1 "
                "priority_queue_policy { key: 1 value { timeout_action: DELAY "
                "default_timeout_microseconds: 9 } }"),
     DYNAMIC % ("priority_levels: 1 default_priority_level: 1 "
                "priority_queue_policy { key: 1 value { timeout_action: DELAY "
                "default_timeout_microseconds: 9 } }")),
    (Rule.SLOT_UTILIZATION, "sequence_batching.direct.minimum_slot_utilization",
     "sequence_batching { direct { minimum_slot_utilization: 1.5 } }",
     "sequence_batching { direct { minimum_slot_utilization: 1 } }"),
    (Rule.INSTANCE_GPUS, "instance_group[0].gpus",
     GROUP % "kind: KIND_CPU gpus: 0", GROUP % "kind: KIND_GPU gpus: 0"),
    (Rule.INSTANCE_GPUS, "instance_group[0].gpus",
     GROUP % "kind: KIND_MODEL gpus: 0", GROUP % "kind: KIND_MODEL"),
    (Rule.INSTANCE_GPUS, "instance_group[0].gpus",
     GROUP % "kind: KIND_GPU gpus: [ 0, -1 ]", GROUP % "kind: KIND_GPU gpus: [ 0, 1 ]"),
    (Rule.INSTANCE_PROFILE, "instance_group[0].profile",
     GROUP % 'profile: "0"', 'platform: "tensorrt_plan" ' + GROUP % 'profile: "0"'),
    (Rule.INSTANCE_PROFILE, "instance_group[0].profile",
     'platform: "tensorrt_plan" ' + GROUP % 'profile: [ "0", "x" ]',
     'platform: "tensorrt_plan" ' + GROUP % 'profile: "0"'),
    (Rule.RESPONSE_CACHE, "response_cache.enable",
     "response_cache { enable: true } sequence_batching { }", "response_cache { enable: true }"),
    (Rule.RESPONSE_CACHE, "response_cache.enable",
     "response_cache { enable: true } model_transaction_policy { decoupled: true }",
     "response_cache { } model_transaction_policy { decoupled: true }"),
    (Rule.TENSOR, "input[1].dims", 'input { name: "z" data_type: TYPE_FP32 dims: 0 }',
     'input { name: "z" data_type: TYPE_FP32 dims: -1 }'),
    (Rule.TENSOR, "output[1]", 'output { name: "z" dims: 1 }',
     'output { name: "z" data_type: TYPE_FP32 dims: 1 }'),
    *((Rule.RESHAPE, "input[1].reshape", TENSOR % bad, TENSOR % good) for bad, good in (
        ("dims: [ 4, 2 ] reshape { shape: [ 4 ] }", "dims: [ 4, 2 ] reshape { shape: [ 8 ] }"),
        ("dims: 4 reshape { shape: [ 4, 0 ] }", "dims: 4 reshape { shape: [ 4, 1 ] }"),
        ("dims: 4 reshape { shape: [ -2 ] }", "dims: 4 reshape { shape: [ 2, 2 ] }"),
        ("dims: 4 reshape { }", "dims: 1 reshape { }"),
        ("dims: 4 reshape { shape: [ -1 ] }", "dims: -1 reshape { shape: [ -1, 1 ] }"),
        ("dims: [ -1, 2 ] reshape { shape: [ 2, -1 ] }",
         "dims: [ -1, 2 ] reshape { shape: [ -1, 1, 2 ] }"),
        ("dims: [ -1, -1 ] reshape { shape: [ -1 ] }",
         "dims: [ -1, -1 ] reshape { shape: [ -1, 1, -1 ] }"),
    )),
    *((Rule.CONTROL_INPUT, f"sequence_batching.control_input[{index}]", CONTROL % bad,
       CONTROL % (START % "int32_false_true: [ 0, 1 ]")) for index, bad in (
        (0, START % ""),
        (0, START % "int32_false_true: [ 0 ]"),
        (0, START % "int32_false_true: [ 0, 1 ] fp32_false_true: [ 0, 1 ]"),
        (1, START % FALSE_TRUE + START.replace('"S"', '"T"') % FALSE_TRUE),
        (1, START % FALSE_TRUE + START.replace("START", "END") % FALSE_TRUE),
    )),
    *((Rule.CONTROL_INPUT, "sequence_batching.control_input[0]", CONTROL % (CORRID % bad),
       CONTROL % (CORRID % "data_type: TYPE_STRING")) for bad in ("", "data_type: TYPE_FP32")),
    *((Rule.BATCH_INPUT, "batch_input[0]", BATCH % bad, BATCH % good) for bad, good in (
        ("data_type: TYPE_FP32", 'data_type: TYPE_FP32 source_input: "x"'),
        ('data_type: TYPE_FP32 source_input: [ "x", "x" ]',
         'kind: BATCH_ITEM_SHAPE data_type: TYPE_FP32 source_input: "x"'),
        ('data_type: TYPE_FP32 source_input: "none"',
         'data_type: TYPE_INT32 source_input: "x"'),
        ('source_input: "x"', 'data_type: TYPE_FP32 source_input: "x"'),
        ('data_type: TYPE_INT64 source_input: "x"', 'data_type: TYPE_INT32 source_input: "x"'),
    )),
    *((Rule.BATCH_INPUT, "batch_output[0]", SCATTER % bad, SCATTER % good) for bad, good in (
        ('target_name: "y"', 'source_input: "x" target_name: "y"'),
        ('source_input: "none" target_name: "y"', 'source_input: "x" target_name: "y"'),
        ('source_input: "x" target_name: "none"', 'source_input: "x" target_name: [ "y" ]'),
        ('source_input: "x" target_name: [ "y", "y" ]', 'source_input: "x" target_name: "y"'),
    )),
    *((Rule.TENSOR_FORMAT, f"input[1].{path}", f"{more}{TENSOR % bad}", TENSOR % good)
      for path, more, bad, good in (
        ("is_shape_tensor", "", "dims: 3 is_shape_tensor: true", "dims: 3"),
        ("is_non_linear_format_io", "",
         "dims: [ 1, 2, 3 ] is_non_linear_format_io: true", "dims: 3"),
        ("dims", 'platform: "tensorrt_plan" ', "dims: 3 is_non_linear_format_io: true", "dims: 3"),
        ("dims", "", "dims: 3 format: FORMAT_NHWC", "dims: [ 3, 4, 4 ] format: FORMAT_NHWC"),
    )),
    *((Rule.WARMUP, f"model_warmup[0]{path}", WARMUP % (1, values), WARMUP % (1, ZEROS))
      for path, values in (
        (".inputs[x]", VALUES % ("x", "FP32", -1)),
        (".inputs[x]", VALUES % ("x", "FP16", 4)),
        (".inputs[x]", VALUES % ("x", "FP32", "[ 1, 4 ]")),
        (".inputs[x]", VALUES.replace("zero_data: true", "") % ("x", "FP32", 4)),
        ("", ""),
        ("", VALUES % ("input", "FP32", 4)),
    )),
    *((Rule.WARMUP, "sequence_batching.state[0].initial_state", STATE % bad, STATE % good)
      for bad, good in (
        (("TYPE_FP16", 2), ("TYPE_FP32", 2)),
        (("TYPE_FP32", 3), ("TYPE_FP32", 2)),
    )),
    *((Rule.BACKEND, path, bad, good) for path, bad, good in (
        ("parameters[FORCE_CPU_ONLY_INPUT_TENSORS]", FORCE % "true", FORCE % "yes"),
        ("runtime", 'runtime: "lib/../../libtriton_python.so"', ""),
    )),
]  # fmt: skip
#: Ends the server, so no test asks one.
DEADLY = [
    (Rule.BATCH_INPUT, "batch_output[0]",
     'batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" }',
     ('batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" '
      'target_name: "y" }')),
    (Rule.WARMUP, "model_warmup[0].batch_size", WARMUP % (9, ZEROS), WARMUP % (8, ZEROS)),
]  # fmt: skip

IDLE = [
    (Rule.INSTANCE_COUNT, "instance_group[0].count", GROUP % "count: -1", GROUP % "kind: KIND_CPU"),
    (Rule.PRIORITY_LEVEL, "dynamic_batching.priority_queue_policy",
     DYNAMIC % "priority_queue_policy { key: 1 }",
     DYNAMIC % "priority_levels: 1 default_priority_level: 1 priority_queue_policy { key: 1 }"),
    (Rule.TIMEOUT_OVERRIDE, "dynamic_batching.default_queue_policy.allow_timeout_override",
     DYNAMIC % (POLICY % "allow_timeout_override: true"),
     DYNAMIC % (POLICY % "allow_timeout_override: true default_timeout_microseconds: 9")),
    (Rule.SEQUENCE_DELAY, "sequence_batching.direct.max_queue_delay_microseconds",
     "sequence_batching { direct { max_queue_delay_microseconds: 9 } }",
     ("sequence_batching { direct { max_queue_delay_microseconds: 9 "
     "minimum_slot_utilization: 0.5 } }")),
    (Rule.WARMUP, "model_warmup[0]", 'model_warmup { name: "zeros" }',
     'model_warmup { name: "zeros" batch_size: 1 }'),
    (Rule.CACHE_FLAG, "response_cache.enable", "response_cache { enable: true }", ""),
    (Rule.HOST_POLICY, "instance_group[0].host_policy",
     GROUP % 'host_policy: "numa0"', GROUP % 'host_policy: "gpu_0"'),
    (Rule.HOST_POLICY, "instance_group[0].host_policy",
     GROUP % 'host_policy: "cpu_0"', GROUP % 'host_policy: "cpu"'),
    (Rule.RATE_LIMIT, "instance_group[0].rate_limiter",
     GROUP % "rate_limiter { priority: 2 }", GROUP % "count: 2"),
]  # fmt: skip
