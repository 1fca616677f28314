#ifndef MIR_MODELS_LAYERS_KERNELS_INSTANCE_NORM_CPU_H_
#define MIR_MODELS_LAYERS_KERNELS_INSTANCE_NORM_CPU_H_

#include <cstdint>

// Instance normalisation and a leaky ReLU in two passes over `instances`
// contiguous arrays of `length` values, float or double: instance i is channel
// i % channels. Threaded; the same bits for any number of threads and on every
// x86-64.
namespace mir::models::kernels {

template <typename T>
struct Instances {
  const T* values;
  int64_t count, length, channels;
  const T* weight;  // [channels], or null for 1.
  const T* bias;    // [channels], or null for 0.
  double epsilon;
  T slope;  // Of the leaky ReLU; 1 for none.
};

// Writes the outputs, and each instance's mean and 1 / sqrt(variance +
// epsilon).
template <typename T>
void NormForward(const Instances<T>& x, T* out, T* mean, T* inverse_deviation);

// Given the gradient to the outputs, writes that to the inputs, and adds those
// to the weight and bias (null: not those).
template <typename T>
void NormBackward(const Instances<T>& x, const T* mean,
                  const T* inverse_deviation, const T* gradient, T* to_values,
                  T* to_weight, T* to_bias);

}  // namespace mir::models::kernels

#endif  // MIR_MODELS_LAYERS_KERNELS_INSTANCE_NORM_CPU_H_
