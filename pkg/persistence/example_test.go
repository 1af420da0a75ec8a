package persistence_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/persistence"
)

func Example() {
	dir, err := os.MkdirTemp("", "persistence")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for process := range uint64(2) {
		index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(process + 1), Hold: true})
		if err != nil {
			panic(err)
		}
		store, err := persistence.Open(persistence.Options{
			Directory: dir, Form: func(aggregate.Kind) string { return "all of it" }, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			panic(err)
		}
		loaded, err := store.Load(context.Background(), index)
		if err != nil {
			panic(err)
		}
		fmt.Println(loaded.Members, "members loaded")
		ctx, end := context.WithCancel(context.Background())
		written := make(chan error)
		go func() { written <- store.Run(ctx, index) }()
		if err := index.PutMember(aggregate.Member{Name: "prod/eu-1", UID: "7f0b"}); err != nil {
			panic(err)
		}
		end() // what was committed is written before Run returns
		if err := <-written; err != nil {
			panic(err)
		}
		if err := store.Close(); err != nil {
			panic(err)
		}
	}
	// Output:
	// 0 members loaded
	// 1 members loaded
}
