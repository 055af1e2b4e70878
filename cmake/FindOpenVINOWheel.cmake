# The OpenVINO wheel of PyPI as an imported target: headers, libraries and the folder for the rpath.
# OPENVINO_WHEEL: the package's folder (…/site-packages/openvino); default: that of ./.venv or of `python3`.
if(NOT OPENVINO_WHEEL)
  foreach(python ${CMAKE_SOURCE_DIR}/.venv/bin/python python3)
    execute_process(
      COMMAND ${python} -c "import importlib.util as u; print(u.find_spec('openvino').submodule_search_locations[0])"
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
      set(OPENVINO_WHEEL ${found} CACHE PATH "folder of the openvino Python package" FORCE)
      break()
    endif()
  endforeach()
endif()
file(GLOB OPENVINO_C_LIB ${OPENVINO_WHEEL}/libs/libopenvino_c.so.*)
file(GLOB OPENVINO_LIB ${OPENVINO_WHEEL}/libs/libopenvino.so.*)
file(GLOB OPENVINO_TBB_LIB ${OPENVINO_WHEEL}/libs/libtbb.so.*)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenVINOWheel REQUIRED_VARS OPENVINO_WHEEL OPENVINO_C_LIB OPENVINO_LIB OPENVINO_TBB_LIB
  REASON_FAILURE_MESSAGE "run `make deps`, or set OPENVINO_WHEEL")

if(NOT TARGET openvino_wheel)
  add_library(openvino_wheel INTERFACE)
  target_include_directories(openvino_wheel SYSTEM INTERFACE ${OPENVINO_WHEEL}/include)
  target_link_libraries(openvino_wheel INTERFACE ${OPENVINO_C_LIB} ${OPENVINO_LIB} ${OPENVINO_TBB_LIB})
  target_link_options(openvino_wheel INTERFACE -Wl,-rpath,${OPENVINO_WHEEL}/libs)
endif()
