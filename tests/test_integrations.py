"""Training frameworks, the real ones: their step numbers, and nothing kept but what was asked for."""

import logging
from pathlib import Path

import pytest
import tenscope

torch = pytest.importorskip("torch")

from tenscope.integrations import StepRecorder  # noqa: E402


def train(steps, model, losses):
    steps.start(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, factor in enumerate(losses, 1):
        steps.begin(number)
        loss = model(torch.randn(4, model[0].in_features)).square().mean() * factor
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps.end(loss)


def small_model(width=8):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU())


def test_every_nth_step(tmp_path):
    with StepRecorder(tmp_path, every=4) as steps:
        train(steps, small_model(), [1.0] * 10)
    run = tenscope.open(tmp_path)
    assert steps.kept == [run.path] and run.closed
    for name in ("0.weight", "0.output", "0.weight.grad", "0.grad_output.0", "loss"):
        assert run.steps(name) == [4, 8], name
    assert {"seeds", "precision"} <= {event.name for event in run.events(kind="note")}


def test_a_ring_keeps_the_last_steps_before_a_nan(tmp_path, capsys):
    losses = [1.0] * 30 + [float("nan")] + [1.0] * 3
    with StepRecorder(tmp_path, on_nan=True, last=3) as steps:
        train(steps, small_model(256), losses)
    (folder,) = tmp_path.iterdir()
    assert steps.kept == [folder]
    assert f"step 31: the loss is nan; the last steps are kept in {folder}" in capsys.readouterr().err
    run = tenscope.open(folder)
    assert run.steps()[-1] == 31
    assert all(run["0.weight", step, 0].shape == (256, 256) for step in (29, 30, 31))
    with pytest.raises(tenscope.Error, match="was dropped to keep within the budget"):
        run["0.weight", 2, 0].sum()
    assert run.event("0.weight", 2, 0).stats.count == 256 * 256, "statistics are kept of all steps"
    assert run["0.weight.grad", 31].torch().isnan().any()


def test_without_an_event_nothing_is_left_and_an_error_is_one(tmp_path):
    with StepRecorder(tmp_path, on_nan=True, on_spike=3.0) as steps:
        train(steps, small_model(), [1.0] * 12)
    assert steps.kept == [] and not list(tmp_path.iterdir())
    steps = StepRecorder(tmp_path, on_nan=True)
    with pytest.raises(ZeroDivisionError), steps:
        train(steps, small_model(), [1.0] * 3)
        raise ZeroDivisionError
    assert steps.kept == [tenscope.open(tmp_path).path] and "ZeroDivisionError" in tenscope.open(tmp_path).state


def test_a_spike_is_kept_and_the_next_one_too(tmp_path):
    with StepRecorder(tmp_path, name="run", on_spike=10.0) as steps:
        train(steps, small_model(), [1.0] * 8 + [1000.0] + [1.0] * 8 + [1000.0])
    assert [path.name for path in steps.kept] == ["run", "run_2"]
    assert [tenscope.open(path).steps()[-1] for path in steps.kept] == [9, 18]
    assert tenscope.open(steps.kept[0])["kept_because", 9].startswith("the loss is ")


def test_what_does_not_go_together_is_said():
    with pytest.raises(tenscope.UsageError, match="two recorders"):
        StepRecorder(every=2, on_nan=True)
    with pytest.raises(tenscope.UsageError, match="goes with on_nan"):
        StepRecorder(max_bytes=1)
    with pytest.raises(tenscope.UsageError, match="a factor above 1"):
        StepRecorder(on_spike=0.5)


def test_transformers(tmp_path):
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    from tenscope.integrations.transformers import TenscopeCallback

    settings = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings, vocab_size=16))
    calls = iter(range(100))

    def poison(module, inputs, output):
        return output * float("nan") if next(calls) == 9 else output  # the second batch of step 5

    model.model.norm.register_forward_hook(poison)
    batch = {"input_ids": torch.arange(8), "labels": torch.arange(8)}
    ring = TenscopeCallback(tmp_path / "ring", on_nan=True, last=2)
    third = TenscopeCallback(tmp_path / "third", every=3)
    arguments = transformers.TrainingArguments(
        tmp_path / "out", max_steps=6, per_device_train_batch_size=2, gradient_accumulation_steps=2, logging_steps=1,
        report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=[batch] * 24, callbacks=[ring, third])
    trainer.train()
    run = tenscope.open(tmp_path / "ring")
    assert run.steps("loss")[-1] == 5 and {4, 5} <= set(run.steps("model.layers.0.output"))
    third_run = tenscope.open(tmp_path / "third")
    logged = {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}
    assert third_run.steps("loss") == third_run.steps("lm_head.weight.grad") == [3, 6]
    assert third_run["loss", 3] == pytest.approx(logged[3], rel=1e-3)
    assert len(third_run.find("model.norm.output", step=3)) == 2, "two batches in a step"
    assert len(model._forward_hooks) == 0


@pytest.mark.filterwarnings("ignore")
def test_lightning(tmp_path, monkeypatch):
    pl = pytest.importorskip("pytorch_lightning")
    from tenscope.integrations.lightning import TenscopeCallback

    monkeypatch.chdir(tmp_path)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    class Model(pl.LightningModule):
        def __init__(self, fails_at):
            super().__init__()
            self.net = torch.nn.Linear(4, 1)
            self.fails_at = fails_at

        def training_step(self, batch, index):
            if self.global_step == self.fails_at:
                raise ValueError("no such sample")
            return {"loss": self.net(batch).square().mean()}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    def fit(callback, fails_at=None):
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = pl.Trainer(
            max_steps=6, accelerator="cpu", enable_model_summary=False, callbacks=[callback], **quiet
        )  # fmt: skip
        trainer.fit(Model(fails_at), torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4))

    fit(TenscopeCallback("every", every=2))
    run = tenscope.open("every")
    assert run.steps("loss") == run.steps("net.output") == run.steps("net.weight.grad") == [0, 2, 4] and run.closed
    fit(TenscopeCallback("quiet", on_nan=True))
    assert not list(Path("quiet").iterdir())
    with pytest.raises(ValueError):
        fit(TenscopeCallback("failing", on_nan=True), fails_at=4)
    run = tenscope.open("failing")
    assert run.steps("net.output")[-1] == 3 and run.state == "failed (ValueError)"
