"""The table of strategies. To add a strategy, write a module and add it here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner.search.strategies.gp import GaussianStrategy
from tuner.search.strategies.model_analyzer import ModelAnalyzerStrategy
from tuner.search.strategies.tpe import TpeStrategy
from tuner.search.strategies.unguided import GridStrategy, RandomStrategy
from tuner.search.strategy import Strategy
from tuner.space.space import Space
from tuner.spec.model import Spec, StrategyName

STRATEGIES: Mapping[StrategyName, Callable[[Space, Spec], Strategy]] = {
    StrategyName.GP: GaussianStrategy,
    StrategyName.TPE: TpeStrategy,
    StrategyName.RANDOM: RandomStrategy,
    StrategyName.GRID: GridStrategy,
    StrategyName.MODEL_ANALYZER: ModelAnalyzerStrategy,
}
