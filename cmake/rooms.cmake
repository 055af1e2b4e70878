# grappa_room(NAME USES rooms… PKG pkg-config modules…): a static library of src/NAME/**.c (and .cpp).
# Includes are written from src/: #include "gguf/gguf.h".
function(grappa_room name)
  cmake_parse_arguments(R "" "" "USES;PKG" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.c ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/cli/main\\.c$")
  if(NOT sources)
    set(sources ${CMAKE_SOURCE_DIR}/cmake/empty.c)
  endif()
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_compile_definitions(${name} PUBLIC $<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE>)
  target_link_libraries(${name} PUBLIC ${R_USES})
  foreach(module ${R_PKG})
    string(MAKE_C_IDENTIFIER ${module} id)
    if(NOT TARGET PkgConfig::${id})
      pkg_check_modules(${id} REQUIRED IMPORTED_TARGET ${module})
    endif()
    target_link_libraries(${name} PUBLIC PkgConfig::${id})
  endforeach()
endfunction()

# minijinja behind a C header, built by cargo as one static library. GRAPPA_RUST_DIR: where cargo builds it; build
# folders that share one build it once (it is the same in all of them: sanitizers are for the C code).
function(grappa_rust_library)
  find_program(CARGO cargo HINTS $ENV{HOME}/.cargo/bin REQUIRED)
  set(GRAPPA_RUST_DIR ${CMAKE_BINARY_DIR}/rust CACHE PATH "folder that cargo builds in")
  set(target_dir ${GRAPPA_RUST_DIR})
  set(archive ${target_dir}/release/libgrappa_rust.a)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/rust/src/*.rs)
  add_custom_command(
    OUTPUT ${archive}
    COMMAND ${CARGO} build --quiet --release --locked --target-dir ${target_dir}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}/rust
    DEPENDS ${sources} ${CMAKE_SOURCE_DIR}/rust/Cargo.toml ${CMAKE_SOURCE_DIR}/rust/Cargo.lock
    COMMENT "Building the Rust library")
  add_custom_target(grappa_rust_build DEPENDS ${archive})
  add_library(grappa_rust INTERFACE)
  add_dependencies(grappa_rust grappa_rust_build)
  target_include_directories(grappa_rust INTERFACE ${CMAKE_SOURCE_DIR}/rust/include)
  target_link_libraries(grappa_rust INTERFACE ${archive} ${CMAKE_DL_LIBS} m)
endfunction()

# build/grappa, and the llama.cpp names as links to it: hard ones, for who resolves a symbolic link before running it loses
# the name.
function(grappa_program)
  add_executable(grappa ${CMAKE_SOURCE_DIR}/src/cli/main.c)
  target_link_libraries(grappa PRIVATE cli)
  target_compile_definitions(grappa PRIVATE _GNU_SOURCE)
  foreach(link llama-bench llama-completion llama-cli llama-perplexity llama-tokenize llama-server grappa-server)
    add_custom_command(TARGET grappa POST_BUILD COMMAND ${CMAKE_COMMAND} -E rm -f ${link}
                       COMMAND ${CMAKE_COMMAND} -E create_hardlink grappa ${link}
                       WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
  endforeach()
endfunction()
