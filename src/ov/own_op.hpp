// What our own CPU operations share.
#ifndef OV_OWN_OP_HPP
#define OV_OWN_OP_HPP

#include <openvino/core/extension.hpp>
#include <openvino/core/op_extension.hpp>
#include <openvino/op/op.hpp>
#include <openvino/runtime/core.hpp>

#include <cstdlib>
#include <memory>
#include <new>

// The C wrapper's handle (openvino/c/src/common.h).
struct ov_core {
    std::shared_ptr<ov::Core> object;
};

// Makes an operation known to a core; -1 when it can't be.
template <typename Op> int register_op(struct ov_core *core)
{
    try {
        core->object->add_extension(std::make_shared<ov::OpExtension<Op>>());
    } catch (const std::exception &) {
        return -1;
    }
    return 0;
}

// What OpenVINO asks of every operation that a CPU evaluates. Settings: what a node is beside its inputs; a
// copy of the node has the same, and visit() names the attributes of its text.
template <typename Self, typename Settings> class OwnOp : public ov::op::Op {
  public:
    bool visit_attributes(ov::AttributeVisitor &v) override
    {
        settings.visit(v);
        return true;
    }

    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector &in) const override
    {
        auto copy = std::make_shared<Self>();
        static_cast<OwnOp &>(*copy).settings = settings;
        copy->set_arguments(in);
        copy->constructor_validate_and_infer_types();
        return copy;
    }

    bool has_evaluate() const override
    {
        return true;
    }

  protected:
    Settings settings;
};

// The table that nodes of this thread find their row in while a graph is read.
template <typename Row> struct TableInUse {
    const Row *rows = nullptr;
    size_t n = 0;

    const Row *at(const char *op, int64_t index) const
    {
        OPENVINO_ASSERT(index >= 0 && static_cast<size_t>(index) < n, op, " ", index, " is not in the table");
        return &rows[index];
    }
};

// Scratch of a thread that runs graphs: it grows to the largest step and stays.
class Scratch {
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

#endif
