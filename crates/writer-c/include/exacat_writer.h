/* Client of exacat's writer service: events into files that are on disk, each once, and in the catalogue.
 *
 * A writer owns memory, threads and connections; streams belong to a writer, and files to a stream. An event
 * has 1 byte to 16 MiB. The client copies it, and keeps it until a service has it on disk.
 *
 * Every function returns a code. After any code but EXW_OK, exw_message() has the reason for this thread.
 * A null pointer where one is not allowed is EXW_ARGUMENT. Nothing here ends the process or throws.
 *
 * Functions of one writer or stream may be called from many threads at once. The functions that close a
 * handle also free it: no other thread may use it then, or later. Close the streams of a writer first.
 *
 * Link with -lexacat_writer. The functions and the fields here never change their meaning.
 */
#ifndef EXACAT_WRITER_H
#define EXACAT_WRITER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct exw_options exw_options;
typedef struct exw_writer exw_writer;
typedef struct exw_stream exw_stream;
typedef struct exw_outcomes exw_outcomes;

enum {
    EXW_OK = 0,
    EXW_ARGUMENT = 1,   /* null pointer, text that is no UTF-8, unknown option, wrong value */
    EXW_SETTINGS = 2,   /* the options cannot work together, or need more memory */
    EXW_NO_SERVICE = 3, /* no service has answered */
    EXW_EVENT_SIZE = 4, /* the event has no byte, or more than 16 MiB; it was not appended */
    EXW_FULL = 5,       /* no memory: the event was not appended; exw_try_append has counted it as shed */
    EXW_FILE_ENDED = 6, /* the only file of the stream has ended; the event was not appended */
    EXW_CLOSED = 7,     /* the writer or stream is closed */
    EXW_TIMEOUT = 8,    /* the outcome is unknown: events may still become durable */
    EXW_LOST = 9,       /* services refused a file for good: the message says how much is lost */
    EXW_INTERNAL = 10   /* a defect of the library */
};

/* Returns the reason of the last failure in this thread. Valid until the next call in this thread. */
const char *exw_message(void);

/* Options for a writer or a stream: names and values as text.
 *
 * Writer:  seeds (HOST:PORT,HOST:PORT; needed), and one of: plain (yes: events and tokens are readable on the
 *          network), ca_file (TLS: PEM file of the authorities); name, token, token_file,
 *          certificate_file and key_file (PEM, with ca_file: they prove the producer where no token is set),
 *          memory_bytes, prepare_memory (yes: it is allocated and touched at the connection),
 *          buffer_bytes (64 KiB to 1 MiB; each stream needs two), linger_ms, connect_ms, silence_ms,
 *          retry_ms, append_ms, flush_ms, close_ms, threads.
 * Stream:  run, stream, lfn (needed), tag.KEY, file_bytes_max, file_events_max, file_age_ms,
 *          first_number (of the files), single (yes: one file, with the very name).
 */
int exw_options_new(exw_options **options);
int exw_options_set(exw_options *options, const char *name, const char *value);
void exw_options_free(exw_options *options);

/* Connects. Returns once a seed has answered. */
int exw_connect(const exw_options *options, exw_writer **writer);

/* Opens a stream. Its first file begins with its first event. */
int exw_open_stream(exw_writer *writer, const exw_options *options, exw_stream **stream);

/* Appends an event. Waits while memory is full, at most append_ms. */
int exw_append(exw_stream *stream, const void *event, size_t bytes);

/* Appends an event, or sheds it at once if memory is full: EXW_FULL. */
int exw_try_append(exw_stream *stream, const void *event, size_t bytes);

/* Waits until everything appended before is on disk, at most flush_ms. */
int exw_flush(exw_stream *stream);

/* Ends the present file. The next event begins another. */
int exw_end_file(exw_stream *stream);

/* Ends a stream, waits for the certificates of its files, at most close_ms, and frees the handle.
 * Outcomes are in the order of the files; the pointer may be null. */
int exw_close_stream(exw_stream *stream, exw_outcomes **outcomes);

/* Ends a writer: as above, for streams that are not closed. Frees the handle. */
int exw_close(exw_writer *writer, exw_outcomes **outcomes);

enum {
    EXW_CERTIFIED = 0, /* in the catalogue, whole */
    EXW_FAILED = 1,    /* will not be in the catalogue: reason */
    EXW_UNKNOWN = 2    /* not certified in time: reason */
};

typedef struct exw_outcome {
    int state;
    uint32_t adler32;
    uint64_t bytes;
    uint64_t events;
    uint64_t duplicates; /* chunks that arrived twice; the file has each once */
    const char *lfn;     /* both texts are valid until exw_outcomes_free */
    const char *reason;
} exw_outcome;

size_t exw_outcomes_count(const exw_outcomes *outcomes);
int exw_outcomes_get(const exw_outcomes *outcomes, size_t index, exw_outcome *outcome);
void exw_outcomes_free(exw_outcomes *outcomes);

typedef struct exw_counts {
    uint64_t appended_events, appended_bytes;
    uint64_t settled_events, settled_bytes; /* durable, or lost */
    uint64_t lost_events, lost_bytes;
    uint64_t shed_events, shed_bytes;
    uint64_t memory_used, memory_bytes;
    uint64_t files; /* not certified yet */
    uint64_t ack_p50_us, ack_p99_us, ack_max_us;
} exw_counts;

int exw_get_counts(const exw_writer *writer, exw_counts *counts);

#ifdef __cplusplus
}
#endif
#endif
