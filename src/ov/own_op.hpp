// What our own CPU operations share.
#ifndef OV_OWN_OP_HPP
#define OV_OWN_OP_HPP

#include <openvino/core/op_extension.hpp>
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
