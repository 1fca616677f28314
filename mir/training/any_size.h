#ifndef MIR_TRAINING_ANY_SIZE_H_
#define MIR_TRAINING_ANY_SIZE_H_

#include <ATen/core/Tensor.h>

#include "mir/models/registration_model.h"
#include "mir/precision/precision.h"

namespace mir::training {

// Registers images of any size: pads them with zeros to the model's multiples,
// and crops the displacement and its weights back. A regularized field of the
// padded size is cropped likewise; one of another resolution stays whole.
//
//   moving, fixed  [N, C, ...]  floating, of equal shape
//
// Throws c10::ValueError as the model does.
models::Registration RegisterAnySize(models::RegistrationModel& model,
                                     const at::Tensor& moving,
                                     const at::Tensor& fixed);

// The same as inference runs it: the network in `precision`, the displacement
// back in float32.
models::Registration RegisterInPrecision(models::RegistrationModel& model,
                                         const at::Tensor& moving,
                                         const at::Tensor& fixed,
                                         precision::Precision precision);

}  // namespace mir::training

#endif  // MIR_TRAINING_ANY_SIZE_H_
