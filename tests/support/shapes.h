#pragma once
/* Shapes as initializers, for tables of cases. */

#define S1(a)    \
    {            \
        1, { a } \
    }
#define S2(a, b)    \
    {               \
        2, { a, b } \
    }
#define S3(a, b, c)    \
    {                  \
        3, { a, b, c } \
    }
#define S4(a, b, c, d)    \
    {                     \
        4, { a, b, c, d } \
    }
