"""ModelTracer: values of a model's methods by path, call by call of the model."""

from __future__ import annotations

from tenscope.probes.gather import gather


class ModelTracer(gather):
    def __init__(
        self,
        model,
        variables,
        trace_interval=1,
        gathering_interval=1,
        pre_save_callbacks=(),
        pre_gather_callbacks=(),
        post_gather_callbacks=(),
        post_trace_callbacks=(),
        eval_only=False,
        train_only=False,
    ):
        assert not (eval_only and train_only), "eval_only and train_only exclude each other"
        super().__init__(
            model,
            variables,
            every=trace_interval,
            gather_every=gathering_interval,
            mode="eval" if eval_only else "train" if train_only else None,
            before_save=pre_save_callbacks,
            before_gather=pre_gather_callbacks,
            after_gather=post_gather_callbacks,
            at_end=post_trace_callbacks,
        )
        self._gathers_rest = False  # what comes after the last gathering is not in the results

    @property
    def variables(self):
        return self.paths


def trace_model(model, variables, *args, **kwargs):
    """Runs the model once and returns its output and the tracer."""
    with ModelTracer(model, variables) as tracer:
        output = model(*args, **kwargs)
    return output, tracer
