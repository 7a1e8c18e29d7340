"""tenscope in training frameworks: docs/integrations.md

`tenscope.integrations.transformers` and `tenscope.integrations.lightning` have a callback each; `StepRecorder` is what
both are made of, for loops of your own. Nothing here is imported unless it is asked for.
"""

from tenscope.integrations.steps import StepRecorder

__all__ = ["StepRecorder"]
