// The operation "GgufLinear": x [T, cols] -> y [T, rows], the product with GGUF blocks read where they lie in the
// model's file. The CPU plugin calls `evaluate` with plain f32 tensors; the work is in src/kernels, the threads are
// the plugin's own pool. See ov/linear_op.h.
#include "ov/linear_op.h"

#include <openvino/core/extension.hpp>
#include <openvino/core/op_extension.hpp>
#include <openvino/op/op.hpp>
#include <openvino/runtime/core.hpp>
#include <tbb/parallel_for.h>

#include <cstdlib>
#include <memory>

// The C wrapper's handle (openvino/c/src/common.h).
struct ov_core {
    std::shared_ptr<ov::Core> object;
};

namespace
{

// Set while a graph is read (ov_linear_table_use), so that a node finds what its index stands for.
thread_local const struct linear *table;
thread_local size_t table_size;

// Scratch of a thread that runs graphs: it grows to the largest step and stays.
class Scratch
{
  public:
    ~Scratch()
    {
        std::free(data);
    }
    void *get(size_t n)
    {
        if (n > size) {
            std::free(data);
            size = (n + 4095) / 4096 * 4096;
            data = std::aligned_alloc(4096, size);
            if (!data) {
                size = 0;
                throw std::bad_alloc();
            }
        }
        return data;
    }

  private:
    void *data = nullptr;
    size_t size = 0;
};

class GgufLinear : public ov::op::Op
{
  public:
    OPENVINO_OP("GgufLinear", "grappa");
    GgufLinear() = default;

    bool visit_attributes(ov::AttributeVisitor &v) override
    {
        v.on_attribute("index", index);
        return true;
    }

    void validate_and_infer_types() override
    {
        if (!linear) {
            OPENVINO_ASSERT(index >= 0 && static_cast<size_t>(index) < table_size, "GgufLinear ", index,
                            " is not in the table of products");
            linear = &table[index];
        }
        auto shape = get_input_partial_shape(0);
        OPENVINO_ASSERT(shape.rank() == 2 && shape[1].compatible(static_cast<int64_t>(linear->cols)),
                        "GgufLinear wants rows of ", linear->cols);
        set_output_type(0, ov::element::f32, {shape[0], static_cast<int64_t>(linear->rows)});
    }

    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector &in) const override
    {
        auto copy = std::make_shared<GgufLinear>();
        copy->index = index;
        copy->linear = linear;
        copy->set_arguments(in);
        copy->constructor_validate_and_infer_types();
        return copy;
    }

    bool has_evaluate() const override
    {
        return true;
    }

    bool evaluate(ov::TensorVector &out, const ov::TensorVector &in) const override
    {
        thread_local Scratch scratch;
        size_t m = in[0].get_shape()[0];
        out[0].set_shape({m, linear->rows});
        if (m == 0)
            return true;
        multiply(m, in[0].data<const float>(), out[0].data<float>(), scratch.get(linear_scratch_size(linear, m)));
        return true;
    }

  private:
    // Below this many rows of x a thread is not worth waking for the rounding.
    static constexpr size_t few_rows = 4;

    void multiply(size_t m, const float *x, float *y, void *scratch) const
    {
        if (m <= few_rows) {
            linear_quantize(linear, m, x, 0, m, scratch);
        } else {
            tbb::parallel_for(tbb::blocked_range<size_t>(0, m, few_rows), [&](const tbb::blocked_range<size_t> &r) {
                linear_quantize(linear, m, x, r.begin(), r.end(), scratch);
            });
        }
        // Pieces of whole steps: small enough that an unlucky thread doesn't keep the others waiting, large enough
        // that handing them out costs nothing.
        size_t step = linear_step(), steps = (linear->rows + step - 1) / step;
        size_t threads = static_cast<size_t>(tbb::this_task_arena::max_concurrency());
        size_t grain = steps / (threads * 8) + 1;
        tbb::parallel_for(
            tbb::blocked_range<size_t>(0, steps, grain),
            [&](const tbb::blocked_range<size_t> &r) {
                size_t end = r.end() * step < linear->rows ? r.end() * step : linear->rows;
                linear_multiply(linear, m, scratch, r.begin() * step, end, y);
            },
            tbb::simple_partitioner());
    }

    int64_t index = -1;
    const struct linear *linear = nullptr;
};

} // namespace

int ov_linear_op_register(struct ov_core *core)
{
    try {
        core->object->add_extension(std::make_shared<ov::OpExtension<GgufLinear>>());
    } catch (const std::exception &) {
        return -1;
    }
    return 0;
}

void ov_linear_table_use(const struct linear *linears, size_t n)
{
    table = linears;
    table_size = n;
}
