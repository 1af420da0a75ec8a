package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
)

// largeRego asks for large objects in many rows.
func (r *rig) largeRego(ctx context.Context, _ *rand.Rand, _ string) error {
	q := "a := data.fleet.objects.ConfigMap[m][ns][n]; i := numbers.range(1, 40)[_]"
	return r.atOnce(ctx, 4, "application/json", "/query/v1/rego?query="+url.QueryEscape(q))
}

// wideRego asks for objects of many fields in many rows.
func (r *rig) wideRego(ctx context.Context, _ *rand.Rand, _ string) error {
	q := "a := data.fleet.objects.ConfigMap[m][ns][n]; i := numbers.range(1, 400)[_]"
	return r.atOnce(ctx, 2, "application/json", "/query/v1/rego?query="+url.QueryEscape(q))
}

// mostRego is how many queries one caller may have running or waiting.
const mostRego = 2 + 8

// crowdRego asks more than one caller may, each for a while.
func (r *rig) crowdRego(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	at := r.host + "/query/v1/rego?query=" + url.QueryEscape("count([1 | i := numbers.range(1, 2000)[_]; j := numbers.range(1, 1000)[_]; i < j], n)")
	var asking sync.WaitGroup
	var refused atomic.Int64
	for range 3 * mostRego {
		asking.Go(func() {
			code, _, err := get(ctx, r.admin, at, "application/json")
			if err == nil && code == http.StatusTooManyRequests {
				refused.Add(1)
			}
		})
	}
	asking.Wait()
	if refused.Load() == 0 {
		return &Finding{"share", fmt.Errorf("of %d queries of one caller at once none is refused, more than %d should be", 3*mostRego, mostRego)}
	}
	return nil
}

func (r *rig) manyRego(ctx context.Context, _ *rand.Rand, _ string) error {
	if err := r.crowdRego(ctx); err != nil {
		return err
	}
	cross := "a := data.fleet.objects.ConfigMap[m][ns][n]; b := data.fleet.objects.ConfigMap[m2][ns2][n2]; c := data.fleet.objects.ConfigMap[m3][ns3][n3]"
	wide := "i := numbers.range(1, 5000)[_]; j := numbers.range(1, 5000)[_]"
	return r.atOnce(ctx, 6, "application/json", "/query/v1/rego?query="+url.QueryEscape(cross), "/query/v1/rego?query="+url.QueryEscape(wide),
		"/query/v1/rego?query="+url.QueryEscape("x := [[a, b] | a := data.fleet.objects.ConfigMap[_][_][_]; b := data.fleet.objects.ConfigMap[_][_][_]]"))
}
