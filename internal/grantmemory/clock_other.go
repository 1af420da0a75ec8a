//go:build !linux

package grantmemory

import "time"

func sinceBoot() time.Duration { return time.Duration(time.Now().UnixNano()) }
