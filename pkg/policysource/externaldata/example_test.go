package externaldata_test

import (
	"context"
	"fmt"
	"testing/fstest"
	"time"

	"federator.dev/federator/pkg/policysource/externaldata"
)

func Example() {
	tree := fstest.MapFS{"owners.yaml": {Data: []byte("web: shop\n")}}
	m, err := externaldata.NewManager(externaldata.Options{
		Checkout: func(string) externaldata.Checkout {
			return externaldata.Checkout{Commit: "4c1f", Path: "data", Tree: tree, At: time.Now()}
		},
		ConfigMap: func(context.Context, string) (map[string]string, string, error) {
			return nil, "", externaldata.ErrNotFound
		},
	})
	if err != nil {
		panic(err)
	}
	if err := m.SetSources([]externaldata.Source{{Name: "platform", Documents: []externaldata.Document{{Key: "owners", File: "owners.yaml"}}}}); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.Run(ctx)
	}()
	for {
		s := m.State()
		if list := s.Status["platform"]; len(list) > 0 && list[0].Known {
			d, _ := s.External.Document("platform", "owners")
			fmt.Println(list[0].From, string(d.JSON))
			break
		}
		<-s.Replaced()
	}
	cancel()
	<-done
	// Output: data/owners.yaml of commit 4c1f {"web":"shop"}
}
