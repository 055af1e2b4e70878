/* A room without sources yet. */
typedef int grappa_empty_room;
