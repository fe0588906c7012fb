/* Functions of the thread sanitizer's runtime that Rust's compiler calls and those of C compilers may not have yet: their own memory functions
 * check each access. */
#include <string.h>

void *__tsan_memcpy(void *to, const void *from, size_t length)
{
	return memcpy(to, from, length);
}

void *__tsan_memmove(void *to, const void *from, size_t length)
{
	return memmove(to, from, length);
}

void *__tsan_memset(void *to, int value, size_t length)
{
	return memset(to, value, length);
}
