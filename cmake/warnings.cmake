# Warnings and sanitizers for all of our own code.
# Checked: the build type of sanitizers and fuzzing: assertions stay, the lines of a stack trace are right.
set(CMAKE_C_FLAGS_CHECKED "-O1 -g" CACHE STRING "")
set(CMAKE_CXX_FLAGS_CHECKED "-O1 -g" CACHE STRING "")
add_compile_options(
  -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wvla -Wundef
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
  $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
  -fno-math-errno -ffp-contract=off)

if(GRAPPA_SANITIZE)
  add_compile_options(-fsanitize=${GRAPPA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${GRAPPA_SANITIZE})
endif()
if(GRAPPA_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()
