package kube

import "syscall"

// sysProcAttr keeps a terminal's interrupt from the child, so that it goes in
// the fleet's order, and has the kernel kill it when the parent is gone.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
