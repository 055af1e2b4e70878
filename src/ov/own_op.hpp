// What our own CPU operations share.
#ifndef OV_OWN_OP_HPP
#define OV_OWN_OP_HPP

#include <openvino/runtime/core.hpp>

#include <cstdlib>
#include <memory>
#include <new>

// The C wrapper's handle (openvino/c/src/common.h).
struct ov_core {
    std::shared_ptr<ov::Core> object;
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
