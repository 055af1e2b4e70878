# The page in the binary: every file of web/dist, or, where that was not built, one line of HTML. Makes
# assets.c in the build folder: a table (src/server/assets.h) of bytes that the assembler includes as they are. A file
# NAME.gz is served as NAME, compressed.
function(grappa_assets target)
  set(root ${CMAKE_SOURCE_DIR}/web/dist)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${root}/*)
  if(NOT files)
    set(root ${CMAKE_SOURCE_DIR}/src/server/plain)
    file(GLOB_RECURSE files CONFIGURE_DEPENDS ${root}/*)
  endif()
  set(types ".html=text/html@ charset=utf-8" ".js=text/javascript@ charset=utf-8" ".css=text/css@ charset=utf-8"
            ".svg=image/svg+xml" ".png=image/png" ".ico=image/x-icon" ".json=application/json"
            ".webmanifest=application/manifest+json" ".woff2=font/woff2" ".txt=text/plain@ charset=utf-8")
  set(bytes "")
  set(rows "")
  set(i 0)
  foreach(file ${files})
    file(RELATIVE_PATH path ${root} ${file})
    set(gzip false)
    if(path MATCHES "\\.gz$")
      set(gzip true)
      string(REGEX REPLACE "\\.gz$" "" path ${path})
    endif()
    get_filename_component(suffix ${path} LAST_EXT)
    set(type "application/octet-stream")
    foreach(pair IN LISTS types)
      string(FIND "${pair}" "=" at)
      string(SUBSTRING "${pair}" 0 ${at} key)
      if(suffix STREQUAL key)
        math(EXPR at "${at} + 1")
        string(SUBSTRING "${pair}" ${at} -1 type)
        string(REPLACE "@" ";" type "${type}") # a semicolon would split the list
      endif()
    endforeach()
    string(APPEND bytes "extern const unsigned char asset_${i}[], asset_${i}_end[];\n"
      "__asm__(\".section .rodata\\n.balign 16\\nasset_${i}: .incbin \\\"${file}\\\"\\nasset_${i}_end: .byte 0\\n.previous\");\n")
    string(APPEND rows "    {\"/${path}\", \"${type}\", asset_${i}, 0, ${gzip}},\n")
    string(APPEND ends "    asset_${i}_end,\n")
    math(EXPR i "${i} + 1")
  endforeach()
  set(out ${CMAKE_BINARY_DIR}/assets.c)
  file(CONFIGURE OUTPUT ${out} CONTENT "/* Made by cmake/assets.cmake. */
#include \"server/assets.h\"

@bytes@
struct asset assets[] = {
@rows@};
static const unsigned char *const ends[] = {
@ends@};
const size_t n_assets = sizeof assets / sizeof *assets;

__attribute__((constructor)) static void measure(void)
{
    for (size_t i = 0; i < n_assets; i++)
        assets[i].n = (size_t)(ends[i] - assets[i].data);
}
" @ONLY)
  set_source_files_properties(${out} PROPERTIES OBJECT_DEPENDS "${files}")
  target_sources(${target} PRIVATE ${out})
endfunction()
