package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	corev1 "k8s.io/api/core/v1"

	"federator.dev/federator/test/sim"
	"federator.dev/federator/test/sim/siblings"
)

// fleet is what commands act on.
type fleet struct {
	*sim.Fleet
	members []*sim.Member
	pods    []*siblings.Pods // by member
	stamp   bool
	idle    stats // before the first request

	churned float64 // updates a second
	stop    context.CancelFunc
	running sync.WaitGroup
	failed  chan error // buffered; of churn
}

// serve does what lines say until ctx ends:
//
//	stats     prints stats as a line of JSON
//	churn N   makes N pod updates a second from now on
//	slow N    gives each watch N bytes a second, from now on
//	heal      ends that
//
// The end of the input ends nothing.
func (f *fleet) serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.failed = make(chan error, 1)
	f.churn(ctx, f.churned)
	defer f.churn(ctx, 0)
	lines := make(chan string)
	go func() { // ends with the process: a read of standard input cannot be ended
		for s := bufio.NewScanner(in); s.Scan(); {
			select {
			case lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case line := <-lines:
			if err := f.do(ctx, line, out); err != nil {
				return err
			}
		case err := <-f.failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *fleet) do(ctx context.Context, line string, out io.Writer) error {
	verb, arg, _ := strings.Cut(line, " ")
	n := 0.0
	if arg != "" {
		var err error
		if n, err = strconv.ParseFloat(arg, 64); err != nil || n < 0 {
			return fmt.Errorf("%q is no number", arg)
		}
	}
	switch verb {
	case "stats":
		return json.NewEncoder(out).Encode(f.stats())
	case "churn":
		f.churn(ctx, n)
	case "slow":
		for _, m := range f.members {
			m.Faults().Add(sim.Fault{Verb: "watch", BytesPerSecond: int(n)})
			m.Faults().Add(sim.Fault{Verb: "watchlist", BytesPerSecond: int(n)})
			m.DropWatches()
		}
	case "heal":
		for _, m := range f.members {
			m.Faults().Clear()
			m.DropWatches()
		}
	default:
		return fmt.Errorf("no command %q", line)
	}
	return nil
}

// stats are what the process uses.
type stats struct {
	RSS           int64   `json:"rss"`           // bytes
	CPU           float64 `json:"cpu"`           // seconds of user and kernel, since the members were ready
	Goroutines    int     `json:"goroutines"`    //
	Watches       int     `json:"watches"`       // that are open
	BytesPerWatch int64   `json:"bytesPerWatch"` // of RSS, above what the members alone need
	Reads         int     `json:"reads"`         // lists, and watches with initial events: sim.Requests.Read
	Requests      int     `json:"requests"`      //
}

func (f *fleet) stats() stats {
	s := measure()
	s.CPU -= f.idle.CPU
	for _, m := range f.members {
		s.Reads += m.Requests().Read()
		s.Requests += m.Requests().Total()
	}
	if s.Watches = f.Watches(); s.Watches > 0 {
		s.BytesPerWatch = (s.RSS - f.idle.RSS) / int64(s.Watches)
	}
	return s
}

func measure() stats {
	s := stats{Goroutines: runtime.NumGoroutine()}
	if data, err := os.ReadFile("/proc/self/statm"); err == nil {
		var size, pages int64
		if _, err := fmt.Sscan(string(data), &size, &pages); err == nil {
			s.RSS = pages * int64(os.Getpagesize())
		}
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err == nil {
		s.CPU = time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
	}
	return s
}

// churn updates pods at random, so many a second, until it is called again or ctx ends.
func (f *fleet) churn(ctx context.Context, perSecond float64) {
	if f.stop != nil {
		f.stop()
		f.running.Wait()
		f.stop = nil
	}
	if perSecond == 0 || f.pods[0].Len() == 0 || ctx.Err() != nil {
		return
	}
	ctx, f.stop = context.WithCancel(ctx)
	f.running.Go(func() {
		limit := rate.NewLimiter(rate.Limit(perSecond), 10)
		for n := 1; limit.Wait(ctx) == nil; n++ {
			if err := f.update(n); err != nil {
				f.failed <- err
				return
			}
		}
	})
}

func (f *fleet) update(n int) error {
	i := rand.IntN(len(f.members))
	namespace, name := f.pods[i].Name(rand.IntN(f.pods[i].Len()))
	return f.members[i].Modify(podResource, namespace, name, func(obj sim.Object) {
		pod := obj.(*corev1.Pod)
		siblings.Touch(pod, n)
		if f.stamp {
			siblings.StampNow(pod)
		}
	})
}
