package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lossyLink is a link to another network namespace whose packets are late and lost, so that the kernel's
// own TCP has to make up for it. It needs root.
type lossyLink struct {
	dir   string
	child *exec.Cmd
	peer  *os.File // whole packets to and from the child
	tun   *os.File
	wg    sync.WaitGroup
}

// The addresses of both ends of the link.
const (
	lossyHere = "10.77.0.1"
	lossyFar  = "10.77.0.2"
)

// openTUN makes a network interface whose packets are read and written here.
func openTUN(name, address string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("interface %s: %w", name, err), unix.Close(fd))
	}
	for _, args := range []string{"addr add " + address + "/30 dev " + name, "link set " + name + " mtu 1400 up"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return nil, errors.Join(fmt.Errorf("ip %s: %w: %s", args, err, out), unix.Close(fd))
		}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openLossy opens a link with the delay of each direction and the share of packets that are lost.
func openLossy(ctx context.Context, dir string, delay time.Duration, loss float64) (l *lossyLink, err error) {
	l = &lossyLink{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.tun, err = openTUN("fedbench0", lossyHere); err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	l.peer = os.NewFile(uintptr(pair[0]), "lossy link")
	theirs := os.NewFile(uintptr(pair[1]), "lossy link")
	defer theirs.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l.child = exec.Command(self, "-child", "lossy-far", dir, "0")
	l.child.ExtraFiles = []*os.File{theirs}
	l.child.Stderr = os.Stderr
	l.child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := l.child.Start(); err != nil {
		l.child = nil
		return nil, err
	}
	l.wg.Go(func() { lossy(l.tun, l.peer, delay, loss) })
	l.wg.Go(func() { lossy(l.peer, l.tun, delay, loss) })
	return l, poll(ctx, 10*time.Second, func() bool {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err == nil
	})
}

// lossy carries packets until one end is closed. They stay in order.
func lossy(from io.Reader, to io.Writer, delay time.Duration, loss float64) {
	type packet struct {
		at   time.Time
		data []byte
	}
	queue := make(chan packet, 4096) // beyond it they are lost, as at any full router
	var wg sync.WaitGroup
	wg.Go(func() {
		for p := range queue {
			time.Sleep(time.Until(p.at))
			_, _ = to.Write(p.data) // a packet that cannot be sent is lost
		}
	})
	defer wg.Wait()
	defer close(queue)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if rand.Float64() < loss {
			continue
		}
		select {
		case queue <- packet{time.Now().Add(delay), append([]byte(nil), buf[:n]...)}:
		default:
		}
	}
}

// forward listens on an address of this machine, and has each connection go on to a port of this end of the link
// by way of the far end. It returns the address.
func (l *lossyLink) forward(port string) (net.Listener, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.wg.Go(func() {
		acceptAll(listener, func(near net.Conn) {
			far, err := net.Dial("unix", filepath.Join(l.dir, "far"))
			if err != nil {
				_ = near.Close()
				return
			}
			if _, err := fmt.Fprintf(far, "%5s", port); err == nil {
				splice(near, far)
			}
		})
	})
	return listener, nil
}

// host is this end of the link.
func (l *lossyLink) host() string { return lossyHere }

func (l *lossyLink) close() (err error) {
	if l.child != nil {
		err = l.child.Process.Kill()
		_ = l.child.Wait() // it was killed
	}
	for _, f := range []*os.File{l.tun, l.peer} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	l.wg.Wait()
	return err
}

// lossyFarEnd is the other end of the link, in a network namespace of its own, until it is killed.
func lossyFarEnd(ctx context.Context, dir string, _ int) (figures, error) {
	tun, err := openTUN("fedbench1", lossyFar)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(3, true); err != nil {
		return nil, err
	}
	peer := os.NewFile(3, "lossy link")
	listener, err := net.Listen("unix", filepath.Join(dir, "far"))
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	wg.Go(func() { lossy(tun, peer, 0, 0) })
	wg.Go(func() { lossy(peer, tun, 0, 0) })
	if err := os.WriteFile(filepath.Join(dir, "ready"), nil, 0o600); err != nil {
		return nil, err
	}
	acceptAll(listener, func(near net.Conn) {
		var port [5]byte
		_, err := io.ReadFull(near, port[:])
		var far net.Conn
		if err == nil {
			far, err = net.Dial("tcp", net.JoinHostPort(lossyHere, strings.TrimSpace(string(port[:]))))
		}
		if err != nil {
			_ = near.Close()
			return
		}
		splice(near, far)
	})
	wg.Wait()
	return nil, ctx.Err()
}

// acceptAll serves connections until the listener is closed, and returns when all have ended.
func acceptAll(listener net.Listener, serve func(net.Conn)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		wg.Go(func() { serve(conn) })
	}
}

// splice copies in both directions until one ends.
func splice(a, b net.Conn) {
	var wg sync.WaitGroup
	for _, c := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			_, _ = io.Copy(c[0], c[1]) // either end may go
			_ = a.Close()
			_ = b.Close()
		})
	}
	wg.Wait()
}
