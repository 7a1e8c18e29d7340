"""One process: the whole batch at once, or micro-batches whose gradients add up."""

from __future__ import annotations

import training

options = training.parser("loss_scale", "no_zero_grad", "zero_inside", "dropped")
options.add_argument("--micro", type=int, default=1, help="micro-batches for a step")
options = options.parse_args()
training.start()
model = training.make_model(options)

if options.micro == 1 and options.bug is None:
    training.train_alone(options, model)
else:
    optimizer = training.make_optimizer(options, model)
    for step in range(training.STEPS):
        if options.bug != "no_zero_grad":
            optimizer.zero_grad()
        for part in range(options.micro):
            if options.bug == "dropped" and part == options.micro - 1:
                continue
            if options.bug == "zero_inside":
                optimizer.zero_grad()
            ids, targets = training.part_of(step, part, options.micro)
            loss = training.loss_of(model(ids), targets)
            (loss if options.bug == "loss_scale" else loss / options.micro).backward()
        optimizer.step()

if options.check:
    training.check(options, training.state(model))
