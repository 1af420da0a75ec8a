package membership_test

import (
	"testing"
	"time"

	"federator.dev/federator/pkg/shards/internal/membership"
	"federator.dev/federator/pkg/shards/internal/shardmap"
)

func TestLeases(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	l := membership.New(15*time.Second, 10*time.Second)
	see := func(version string, after, renewed time.Duration, released bool) bool {
		return l.See(membership.Lease{Process: shardmap.Process{ID: "a", Epoch: 1}, Version: version, Renewed: start.Add(renewed), Released: released}, start.Add(after))
	}
	lives := func(after time.Duration) bool { return len(l.Live(start.Add(after))) == 1 }
	if see("10", 0, -2*time.Minute, false); lives(0) {
		t.Error("what ended long ago lives when it is first seen")
	}
	if !see("11", time.Second, -time.Minute, false) || !lives(time.Second) {
		t.Error("one that is renewed does not live, by a clock that is late")
	}
	if !lives(15*time.Second) || lives(16*time.Second) {
		t.Error("it expires at another time")
	}
	if see("11", 20*time.Second, -time.Minute, false) || lives(20*time.Second) {
		t.Error("what was seen before renews it")
	}
	if see("12", 21*time.Second, 0, false); !lives(21 * time.Second) {
		t.Error("it does not come back")
	}
	if see("11", 35*time.Second, -time.Minute, false); lives(37 * time.Second) {
		t.Error("what a watch tells later renews it")
	}
	if see("13", 40*time.Second, time.Minute, false); !lives(40 * time.Second) {
		t.Error("it does not come back again")
	}
	if see("5", 41*time.Second, 2*time.Minute, false); !lives(55 * time.Second) {
		t.Error("it is not renewed after the hub was put back")
	}
	if !see("14", 42*time.Second, 2*time.Minute, true) || lives(42*time.Second) {
		t.Error("one that was released lives")
	}
	if !l.Released("a") || l.Released("b") {
		t.Error("it is not known who has ended in order")
	}
	l.Forget("a")
	if _, is := l.Process("a"); is {
		t.Error("it is not forgotten")
	}
}

// TestLeases_ARefusedConnectionIsNoEndByItself: only with a Lease that is not renewed, and then sooner than without it.
func TestLeases_ARefusedConnectionIsNoEndByItself(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(after int) time.Time { return start.Add(time.Duration(after) * time.Second) }
	l := membership.New(15*time.Second, 10*time.Second)
	see := func(version string, after int, address string) {
		l.See(membership.Lease{Process: shardmap.Process{ID: "a", Epoch: 1, Address: address}, Version: version, Renewed: at(after)}, at(after))
	}
	lives := func(after int) bool { return len(l.Live(at(after))) == 1 }
	see("1", 0, "10.0.0.1:1")
	l.Refused("a", "10.0.0.1:1", at(4))
	if !lives(9) || lives(10) || l.Next(at(4)) != 6*time.Second {
		t.Error("refused, it does not end 10 s after it was renewed")
	}
	see("2", 5, "10.0.0.1:1")
	if !lives(19) || lives(20) || l.Next(at(5)) != 15*time.Second {
		t.Error("a renewal does not make it as if nothing had been refused")
	}
	l.Refused("a", "10.0.0.1:1", at(5))
	l.Refused("a", "10.0.0.9:1", at(6))
	l.Refused("b", "10.0.0.1:1", at(6))
	if !lives(19) {
		t.Error("what was refused before, elsewhere, or by another process counts")
	}
	if l.Next(at(60)) != 0 {
		t.Error("who does not live ends again")
	}
}
