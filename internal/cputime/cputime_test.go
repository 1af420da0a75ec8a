package cputime_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"federator.dev/federator/internal/cputime"
)

// Waiting takes nothing, or what others of the process take meanwhile.
func Example() {
	began := cputime.Process()
	time.Sleep(200 * time.Millisecond)
	fmt.Println(cputime.Process()-began < 150*time.Millisecond)
	// Output: true
}

// spin computes until the calling thread has used some time.
func spin(d time.Duration) {
	for began := cputime.Thread(); cputime.Thread()-began < d; {
	}
}

func TestProcess_HasTheTimeOfAllThreads(t *testing.T) {
	const each = 30 * time.Millisecond
	began := cputime.Process()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			spin(each)
		})
	}
	wg.Wait()
	if used := cputime.Process() - began; used < 3*each {
		t.Errorf("three threads took %v each, and the process %v", each, used)
	}
}

func TestThread_HasNoTimeOfOthers(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, done := cputime.Thread(), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		spin(50 * time.Millisecond)
	}()
	<-done
	if used := cputime.Thread() - began; used > 25*time.Millisecond {
		t.Errorf("waiting took %v", used)
	}
}
