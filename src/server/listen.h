/* Sockets that listen: addresses, ports, paths of local sockets. */
#ifndef SERVER_LISTEN_H
#define SERVER_LISTEN_H

#include "grappa.h"

/* A socket that listens on `host` (a name, an address, or a path that ends in ".sock"); says so in the log.
 * `several`: an IPv6 address must leave IPv4 to others. -1: the error names the address. */
int listen_on(const char *host, uint16_t port, bool reuse_port, bool several, bool tls,
              struct grappa_err *err);

#endif
