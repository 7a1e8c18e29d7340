// A hand-written MLP learns y = sin(3 x) and records what its tensors do. Then: tenscope ls runs
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <tenscope/tenscope.hpp>
#include <vector>

namespace {

using tenscope::Io;
using tenscope::Phase;

constexpr std::int64_t kBatch = 64, kHidden = 32;

struct Layer {
  std::int64_t inputs, outputs;
  std::vector<float> weight, bias, grad_weight, grad_bias;

  Layer(std::int64_t in, std::int64_t out, std::mt19937& random)
      : inputs(in), outputs(out), weight(in * out), bias(out), grad_weight(in * out), grad_bias(out) {
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(in)));
    for (auto& w : weight) w = normal(random);
  }

  std::vector<float> forward(const std::vector<float>& x) const {
    std::vector<float> y(kBatch * outputs);
    for (std::int64_t b = 0; b < kBatch; ++b) {
      for (std::int64_t o = 0; o < outputs; ++o) {
        float sum = bias[o];
        for (std::int64_t i = 0; i < inputs; ++i) sum += weight[o * inputs + i] * x[b * inputs + i];
        y[b * outputs + o] = sum;
      }
    }
    return y;
  }

  std::vector<float> backward(const std::vector<float>& x, const std::vector<float>& grad_y) {
    std::vector<float> grad_x(kBatch * inputs);
    std::fill(grad_weight.begin(), grad_weight.end(), 0.0f);
    std::fill(grad_bias.begin(), grad_bias.end(), 0.0f);
    for (std::int64_t b = 0; b < kBatch; ++b) {
      for (std::int64_t o = 0; o < outputs; ++o) {
        const float g = grad_y[b * outputs + o];
        grad_bias[o] += g;
        for (std::int64_t i = 0; i < inputs; ++i) {
          grad_weight[o * inputs + i] += g * x[b * inputs + i];
          grad_x[b * inputs + i] += g * weight[o * inputs + i];
        }
      }
    }
    return grad_x;
  }

  void update(float rate) {
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] -= rate * grad_weight[i];
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] -= rate * grad_bias[i];
  }
};

void record(tenscope::Run& run, const char* name, Io io, Phase phase, const std::vector<float>& data, std::int64_t rows,
            std::int64_t columns) {
  tenscope::EventInfo info;
  info.name = name;
  info.io = io;
  info.phase = phase;
  info.root = "MLP#0";
  run.record(info, tenscope::view(data.data(), {rows, columns}));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string base = argc > 1 ? argv[1] : "runs";
  const int steps = argc > 2 ? std::atoi(argv[2]) : 20;
  std::mt19937 random(1);
  Layer first(1, kHidden, random), second(kHidden, 1, random);

  tenscope::Run run(base);
  for (int step = 0; step < steps; ++step) {
    run.step(step);
    std::vector<float> x(kBatch), target(kBatch);
    for (std::int64_t b = 0; b < kBatch; ++b) {
      x[b] = 2 * static_cast<float>(b) / (kBatch - 1) - 1;
      target[b] = std::sin(3 * x[b]);
    }

    auto hidden = first.forward(x);
    record(run, "first.output", Io::Output, Phase::Forward, hidden, kBatch, kHidden);
    for (auto& h : hidden) h = std::tanh(h);
    record(run, "tanh.output", Io::Output, Phase::Forward, hidden, kBatch, kHidden);
    const auto y = second.forward(hidden);
    record(run, "second.output", Io::Output, Phase::Forward, y, kBatch, 1);

    double loss = 0;
    std::vector<float> grad_y(kBatch);
    for (std::int64_t b = 0; b < kBatch; ++b) {
      const float error = y[b] - target[b];
      loss += error * error / kBatch;
      grad_y[b] = 2 * error / kBatch;
    }
    run.record("loss", loss);

    auto grad_hidden = second.backward(hidden, grad_y);
    for (std::size_t i = 0; i < grad_hidden.size(); ++i) grad_hidden[i] *= 1 - hidden[i] * hidden[i];
    first.backward(x, grad_hidden);
    record(run, "first.weight.grad", Io::Grad, Phase::Backward, first.grad_weight, kHidden, 1);
    record(run, "second.weight.grad", Io::Grad, Phase::Backward, second.grad_weight, 1, kHidden);
    first.update(0.1f);
    second.update(0.1f);
    record(run, "first.weight", Io::Param, Phase::Optimizer, first.weight, kHidden, 1);
    record(run, "second.weight", Io::Param, Phase::Optimizer, second.weight, 1, kHidden);
  }
  run.close();

  const tenscope::Reader reader(run.path());
  tenscope::Query query;
  query.name = "loss";
  const auto losses = reader.find(query);
  std::printf("%zu events in %s\nloss %.4f -> %.4f\n", reader.event_count(), run.path().c_str(),
              std::get<double>(reader.event(losses.front()).value),
              std::get<double>(reader.event(losses.back()).value));
}
