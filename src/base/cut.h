/* Mapped files that another program cuts short while they are mapped. Reading behind the new end raises
 * SIGBUS, which ends a process: for a server, all of its requests because of one file. */
#ifndef BASE_CUT_H
#define BASE_CUT_H

/* From now on such a page reads as zeros, in the whole process and until it is unmapped. Whoever reads mapped
 * files for long asks after it whether they changed (gguf_changed), and then trusts nothing it has read. Only
 * the main program calls this, since a library doesn't take signals; a failing page of memory still ends the
 * process. */
void cut_files_read_as_zeros(void);

#endif
