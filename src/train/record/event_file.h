#pragma once
/* Event files, which TensorBoard reads: one file per run, with a record for each report. */

#include "kolo/train.h"

typedef struct kolo_event_file kolo_event_file;

/* Creates the folder and a file in it, named by the time. IO; UNSUPPORTED: a build without
 * protobuf-c. */
kolo_status kolo_event_file_create(const char *folder, kolo_event_file **file);
/* Appends the numbers of a report and flushes them. IO, NOMEM. */
kolo_status kolo_event_file_report(kolo_event_file *file, const kolo_train_progress *progress);
/* NULL is allowed. */
void kolo_event_file_close(kolo_event_file *file);
