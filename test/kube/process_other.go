//go:build unix && !linux

package kube

import "syscall"

// sysProcAttr keeps a terminal's interrupt from the child, so that it goes in
// the fleet's order.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
