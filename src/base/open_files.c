/* The limit of open files (ulimit -n). */
#include "base/open_files.h"

#include "base/status.h"

#include <sys/resource.h>

kolo_status kolo_open_files_allow(const char *who, uint64_t least, uint64_t others) {
    struct rlimit files;
    rlim_t wanted = least + others;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted) return KOLO_OK;
    if (files.rlim_max < least) {
        return KOLO_FAIL(KOLO_ERR_IO,
                         "%s needs %llu open files, the limit is %llu: raise it (ulimit -Hn)", who,
                         (unsigned long long)wanted, (unsigned long long)files.rlim_max);
    }
    files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    return KOLO_OK;
}
