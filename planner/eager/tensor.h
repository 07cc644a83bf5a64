// Tensors of the eager emulation. A Tensor is a counted reference to a record, as a Python variable
// is: when the last reference to a storage goes, its buffer is freed after the op issued last.
// Recipes written with these handles therefore free memory exactly where PyTorch's code does.
#pragma once

#include <utility>

#include "planner/eager/dims.h"
#include "proto/base/dtype.h"

namespace foreshard {

class Eager;

struct TensorRecord {
  int storage = -1;
  DType dtype = DType::kFp32;
  Dims shape;
  Dims strides;        // elements
  int64_t offset = 0;  // elements
  int node = -1;       // autograd node that made it
  int output = 0;      // which of the node's outputs
  int parameter = -1;  // set for leaves that collect a gradient
  bool requires_grad = false;
  int references = 0;
};

class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& o) : eager_(o.eager_), id_(o.id_) { Hold(); }
  Tensor(Tensor&& o) noexcept : eager_(std::exchange(o.eager_, nullptr)), id_(o.id_) {}
  Tensor& operator=(Tensor o) noexcept {
    std::swap(eager_, o.eager_);
    std::swap(id_, o.id_);
    return *this;
  }
  ~Tensor() { reset(); }

  explicit operator bool() const { return eager_ != nullptr; }
  void reset();

  const TensorRecord& operator*() const { return record(); }
  const TensorRecord* operator->() const { return &record(); }
  const Dims& shape() const { return record().shape; }
  DType dtype() const { return record().dtype; }
  int64_t numel() const { return Numel(record().shape); }

 private:
  friend class Eager;
  Tensor(Eager* eager, int id) : eager_(eager), id_(id) { Hold(); }
  void Hold();
  const TensorRecord& record() const;

  Eager* eager_ = nullptr;
  int id_ = -1;
};

}  // namespace foreshard
