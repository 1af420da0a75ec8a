package catalog

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// TestCatalog_HeldVersionsStayWhileAMemberFlaps: whatever one member says how often it likes, a
// change of the held version is seldom, and in the end it is the one in common.
func TestCatalog_HeldVersionsStayWhileAMemberFlaps(t *testing.T) {
	const kind aggregate.Kind = "Widget.shop.example"
	both, old := offerOf("Widget", "v2", "v1"), offerOf("Widget", "v1")
	for _, every := range []time.Duration{10 * time.Millisecond, time.Second, time.Minute, 20 * time.Minute} {
		t.Run(fmt.Sprint(every), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				go c.Run(ctx)
				held := func() string {
					synctest.Wait()
					r, _ := c.Select(kind, both[kind])
					return r.GVR.Version
				}
				for i := range 100 {
					c.Set(fmt.Sprint("good-", i), both)
				}
				if held() != "v2" {
					t.Fatalf("%s is held", held())
				}
				flips, reported, was := 0, 0, held()
				change := c.Changed()
				for began, i := time.Now(), 0; time.Since(began) < 24*time.Hour && i < 3000; i++ {
					o := old
					if i%2 == 1 {
						o = both
					}
					c.Set("evil", o)
					time.Sleep(every)
					if now := held(); now != was {
						was = now
						flips++
					}
					select {
					case <-change:
						reported++
						change = c.Changed()
					default:
					}
				}
				if most := 14; flips > most || reported > most {
					t.Errorf("in a day the version changed %d times, and %d changes were reported", flips, reported)
				}
				c.Set("evil", old)
				time.Sleep(2 * time.Hour)
				if held() != "v1" {
					t.Errorf("%s is held when all have v1 alone in common", held())
				}
				c.Set("evil", nil)
				time.Sleep(2 * time.Hour)
				if held() != "v2" {
					t.Errorf("%s is held when it has left", held())
				}
			})
		})
	}
}

// TestCatalog_FirstChangeOfAHeldVersionIsImmediate, for members that join one after the other, and
// again when nothing has changed for long.
func TestCatalog_FirstChangeOfAHeldVersionIsImmediate(t *testing.T) {
	const kind aggregate.Kind = "Widget.shop.example"
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go c.Run(ctx)
		is := func(want, says string) {
			t.Helper()
			synctest.Wait()
			r, _ := c.Select(kind, offerOf("Widget", "v3", "v2", "v1")[kind])
			if r.GVR.Version != want {
				t.Errorf("%s is held, want %s", r.GVR.Version, want)
			}
			if _, note := c.Select(kind, offerOf("Widget", "v1")[kind]); note != says {
				t.Errorf("a member with v1 only has condition %q, want %q", note, says)
			}
		}
		c.Set("a", offerOf("Widget", "v3", "v2", "v1"))
		is("v3", "v3 is held elsewhere but not served: held at v1 here")
		c.Set("b", offerOf("Widget", "v2", "v1"))
		is("v2", "v2 is held elsewhere but not served: held at v1 here")
		c.Set("c", offerOf("Widget", "v1"))
		is("v2", "v2 is held elsewhere but not served: held at v1 here")
		time.Sleep(heldDelay)
		is("v1", "")
		time.Sleep(heldDelayReset + time.Minute)
		c.Set("c", nil)
		is("v2", "v2 is held elsewhere but not served: held at v1 here")
	})
}

// TestCatalog_ForgetsVersionsThatNobodyServes: a member may invent others at each
// discovery.
func TestCatalog_ForgetsVersionsThatNobodyServes(t *testing.T) {
	c := New(nil)
	c.Set("good", offerOf("Widget", "v1"))
	for i := range 100 {
		c.Set("evil", offerOf("Widget", "v1", fmt.Sprint("v", i+2)))
	}
	if versions := c.tallies["Widget.shop.example"].versions; len(versions) != 2 {
		t.Errorf("two versions are served, %d are counted: %v", len(versions), versions)
	}
}
