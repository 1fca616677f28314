#ifndef MIR_PRECISION_GRAD_SCALER_H_
#define MIR_PRECISION_GRAD_SCALER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <functional>
#include <map>

#include "mir/precision/precision.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace mir::precision {

// Whether training in `precision` wants an enabled scaler: for float16 on CUDA
// alone.
bool NeedsGradScaler(Precision precision, c10::DeviceType device_type);

struct GradScalerOptions {
  bool enabled = true;
  double init_scale = 65536;
  double growth_factor = 2;        // Over 1.
  double backoff_factor = 0.5;     // Between 0 and 1.
  int64_t growth_interval = 2000;  // Steps without infinities before growth.
  // Says for all ranks whether any of them found an infinity or NaN; Step calls
  // it on every rank, once per optimizer. Empty: each decides for itself, as
  // is right in a single process and where gradients are averaged over ranks.
  std::function<bool(bool found_here)> agree;
};

// What a checkpoint keeps, by the names of Python's GradScaler.state_dict():
struct GradScalerState {
  double scale = 0;             // "scale"
  double growth_factor = 0;     // "growth_factor"
  double backoff_factor = 0;    // "backoff_factor"
  int64_t growth_interval = 0;  // "growth_interval"
  int64_t growth_tracker = 0;   // "_growth_tracker"
};

// Keeps small float16 gradients from vanishing, as Python's
// torch.amp.GradScaler does (after Micikevicius et al., "Mixed Precision
// Training", 2018). One training step is
//
//   scaler.Scale(loss).backward();
//   scaler.Unscale(optimizer);   // Only to look at gradients or clip them.
//   scaler.Step(optimizer);
//   scaler.Update();
//
// The loss, and so every gradient, is multiplied by a scale; Step divides the
// gradients by it again and skips the optimizer where one is infinite or NaN.
// Update then lowers the scale, or raises it after growth_interval steps that
// were not skipped. Several optimizers may share a scaler and its loss.
//
// Works on a CPU as on CUDA. Where not enabled, Scale returns the loss itself,
// Step steps, and the rest does nothing. Not thread-safe.
class GradScaler {
 public:
  // Throws c10::ValueError for an option outside its range.
  explicit GradScaler(GradScalerOptions options = {});

  bool enabled() const { return options_.enabled; }

  // The loss times the scale, on its device; differentiable.
  at::Tensor Scale(const at::Tensor& loss);

  // Divides the gradients of the optimizer's parameters by the scale, in place.
  // Does not wait for the GPU.
  //
  // Throws c10::Error where called twice, or after Step, without Update, or
  // where no parameter has a gradient; c10::ValueError for float16 or sparse
  // gradients (weights in training are float32).
  void Unscale(torch::optim::Optimizer& optimizer);

  // Unscales where that was not done, and steps unless a gradient is infinite
  // or NaN (on any rank). Returns whether it stepped. Waits for the GPU.
  //
  // Throws as Unscale, and c10::Error where called twice without Update.
  bool Step(torch::optim::Optimizer& optimizer);

  // Lowers or raises the scale. Throws c10::Error where no optimizer was
  // stepped or unscaled since the last time.
  void Update();

  // The scale; 1 where not enabled. Waits for the GPU.
  double scale() const;

  // What to keep for `set_state`. Where not enabled there is nothing to keep:
  // Python's state is empty then. Waits for the GPU.
  GradScalerState state() const;

  // Takes up where `state` was taken; does nothing where not enabled. Throws
  // c10::ValueError for a value outside its range.
  void set_state(const GradScalerState& state);

 private:
  enum class Stage { kUnscaled, kStepped };
  struct OptimizerRecord {
    Stage stage;
    at::Tensor found_inf;  // float32 scalar, on the scale's device; 0 or not.
  };

  void MoveScaleTo(const at::Device& device);

  GradScalerOptions options_;
  // Scalars on the losses' device from the first Scale on: float32 and int32.
  at::Tensor scale_;
  at::Tensor growth_tracker_;
  // Those unscaled or stepped since the last Update.
  std::map<const torch::optim::Optimizer*, OptimizerRecord> records_;
};

}  // namespace mir::precision

#endif  // MIR_PRECISION_GRAD_SCALER_H_
