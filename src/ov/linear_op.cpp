// The operation "GgufLinear": x [T, cols] -> y [T, rows], products with GGUF blocks read where they lie in
// the model's file. The CPU plugin calls `evaluate` with plain f32 tensors; the work is in src/kernels, the
// threads are the plugin's own pool. See ov/linear_op.h.
#include "ov/linear_op.h"

#include "kernels/gate.h"
#include "ov/own_op.hpp"

#include <tbb/parallel_for.h>

#include <string>

namespace {

thread_local TableInUse<struct linear> table; // see ov_linear_table_use

// What the operation makes of the stacked products: the row of enum linear_form's text in IR.
struct Form {
    const char *name;
    bool parts; // an output for each part
    bool gated; // act(first part) * second part
    enum gate gate;
};
const Form forms[] = {
    {"rows", false, false, GATE_SILU},
    {"parts", true, false, GATE_SILU},
    {"silu", false, true, GATE_SILU},
    {"gelu_tanh", false, true, GATE_GELU_TANH},
};

struct LinearSettings {
    int64_t index = -1;
    std::string form_name = "rows";
    const Form *form = nullptr;            // of that name
    const struct linear *linear = nullptr; // the row of that index

    void visit(ov::AttributeVisitor &v)
    {
        v.on_attribute("index", index);
        v.on_attribute("form", form_name);
    }

    void resolve()
    {
        linear = table.at("GgufLinear", index);
        for (const Form &f : forms) {
            if (form_name == f.name)
                form = &f;
        }
        OPENVINO_ASSERT(form, "GgufLinear has no form ", form_name);
        OPENVINO_ASSERT(!form->gated || (linear->rows % 2 == 0 && linear->n_parts <= 2), "GgufLinear ", index,
                        " has no gate");
    }
};

class GgufLinear : public OwnOp<GgufLinear, LinearSettings> {
  public:
    OPENVINO_OP("GgufLinear", "grappa");
    GgufLinear() = default;

    void validate_and_infer_types() override
    {
        if (!settings.linear)
            settings.resolve();
        auto shape = get_input_partial_shape(0);
        OPENVINO_ASSERT(shape.rank() == 2 && shape[1].compatible(static_cast<int64_t>(linear().cols)),
                        "GgufLinear wants rows of ", linear().cols);
        set_output_size(n_outputs());
        for (size_t i = 0; i < n_outputs(); i++)
            set_output_type(i, ov::element::f32, {shape[0], static_cast<int64_t>(output_rows(i))});
    }

    bool evaluate(ov::TensorVector &out, const ov::TensorVector &in) const override
    {
        thread_local Scratch scratch;
        size_t m = in[0].get_shape()[0];
        for (size_t i = 0; i < n_outputs(); i++)
            out[i].set_shape({m, output_rows(i)});
        if (m == 0)
            return true;
        void *x = scratch.get(linear_scratch_size(&linear(), m));
        quantize(m, in[0].data<const float>(), x);
        if (form().gated)
            gated(m, x, out[0].data<float>());
        else if (form().parts)
            parts(m, x, out);
        else
            each_piece(m, linear().rows, [&](size_t first, size_t last) {
                linear_multiply(&linear(), m, x, first, last, out[0].data<float>());
            });
        return true;
    }

  private:
    // Below this many rows of x a thread is not worth waking for the rounding.
    static constexpr size_t few_rows = 4;

    const struct linear &linear() const
    {
        return *settings.linear;
    }

    const Form &form() const
    {
        return *settings.form;
    }

    size_t n_outputs() const
    {
        return form().parts ? static_cast<size_t>(linear().n_parts) : 1;
    }

    size_t output_rows(size_t i) const
    {
        return form().parts ? linear().part[i].rows : form().gated ? linear().rows / 2 : linear().rows;
    }

    void quantize(size_t m, const float *x, void *to) const
    {
        if (m <= few_rows) {
            linear_quantize(&linear(), m, x, 0, m, to);
            return;
        }
        tbb::parallel_for(tbb::blocked_range<size_t>(0, m, few_rows),
                          [&](const tbb::blocked_range<size_t> &r) {
                              linear_quantize(&linear(), m, x, r.begin(), r.end(), to);
                          });
    }

    // Calls fn(first, last) over the rows of W in pieces of whole steps, on all threads. With few rows of x
    // memory is what one waits for: long pieces keep its prefetchers going. With many, shorter ones keep an
    // unlucky thread from being waited for.
    template <typename Fn> static void each_piece(size_t m, size_t rows, Fn fn)
    {
        size_t step = linear_step(), steps = (rows + step - 1) / step;
        size_t pieces =
            static_cast<size_t>(tbb::this_task_arena::max_concurrency()) * (m <= few_rows ? 2 : 8);
        tbb::parallel_for(
            tbb::blocked_range<size_t>(0, steps, (steps + pieces - 1) / pieces),
            [&](const tbb::blocked_range<size_t> &r) {
                fn(r.begin() * step, r.end() * step < rows ? r.end() * step : rows);
            },
            tbb::simple_partitioner());
    }

    // Each part into its own output.
    void parts(size_t m, const void *x, ov::TensorVector &out) const
    {
        each_piece(m, linear().rows, [&](size_t first, size_t last) {
            size_t begin = 0;
            for (int i = 0; i < linear().n_parts; i++) {
                size_t rows = linear().part[i].rows, end = begin + rows;
                size_t from = first > begin ? first : begin, to = last < end ? last : end;
                if (from < to)
                    linear_multiply_to(&linear(), m, x, from, to, out[i].data<float>() + (from - begin),
                                       rows);
                begin = end;
            }
        });
    }

    // Gate and up for a few columns of all rows, multiplied while they are in the cache.
    void gated(size_t m, const void *x, float *y) const
    {
        size_t rows = linear().rows / 2;
        each_piece(m, rows, [&](size_t first, size_t last) {
            thread_local Scratch scratch;
            size_t step = linear_step(), width = step * (m < 64 ? (last - first + step - 1) / step : 1);
            float *gate = static_cast<float *>(scratch.get(2 * m * width * sizeof(float)));
            float *up = gate + m * width;
            for (size_t at = first; at < last; at += width) {
                size_t n = last - at < width ? last - at : width;
                linear_multiply_to(&linear(), m, x, at, at + n, gate, n);
                linear_multiply_to(&linear(), m, x, rows + at, rows + at + n, up, n);
                for (size_t i = 0; i < m; i++)
                    gate_rows(form().gate, gate + i * n, up + i * n, y + i * rows + at, n);
            }
        });
    }
};

} // namespace

int ov_linear_op_register(struct ov_core *core)
{
    return register_op<GgufLinear>(core);
}

void ov_linear_table_use(const struct linear *linears, size_t n)
{
    table = {linears, n};
}
