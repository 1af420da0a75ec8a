package tcpproxy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// Ports below those that connections get by themselves, one of which could have it otherwise while nobody listens.
const (
	firstPort = 16_000
	portCount = 16_000
)

// reserved are the ports of this process, each with a file that it holds locked until it ends: of two tests, in one process or
// in several, none is given a port of the other's, also while nobody listens there.
var reserved struct {
	mu    sync.Mutex
	files map[int]*os.File
}

// reserve reserves a port, and reports whether nobody has it.
func reserve(port int) (bool, error) {
	reserved.mu.Lock()
	defer reserved.mu.Unlock()
	if reserved.files[port] != nil {
		return false, nil
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("federator-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = nil
		}
		return false, err
	}
	if reserved.files == nil {
		reserved.files = map[int]*os.File{}
	}
	reserved.files[port] = f
	return true, nil
}

// ListenBelow listens on a port that no other test is given as long as this process lives.
func ListenBelow(host string) (net.Listener, error) {
	for try := 1; ; try++ {
		port := firstPort + rand.IntN(portCount)
		free, err := reserve(port)
		if err != nil {
			return nil, fmt.Errorf("reserving port %d: %w", port, err)
		}
		if !free {
			if try >= 1000 {
				return nil, errors.New("no port is free")
			}
			continue
		}
		l, err := net.Listen("tcp4", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil || try >= 1000 {
			return l, err
		}
	}
}
