/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RS_COMMON_VERSION_H
#define RS_COMMON_VERSION_H

#define RS_VERSION "0.1.0"

#endif
