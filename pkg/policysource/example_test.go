package policysource_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/test/git"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	repo, err := git.Init(filepath.Join(dir, "repo"))
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := repo.Commit(map[string]string{"policies/team.rego": rule("team", "bad")}); err != nil {
		fmt.Println(err)
		return
	}

	m, err := policysource.NewManager(policysource.Options{
		AllowFile: true,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := m.SetSources([]policysource.Source{{Name: "team", URL: "file://" + repo.Dir, Path: "policies"}}); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()

	state := m.State()
	for state.Status["team"].Phase != policysource.Active {
		<-state.Replaced()
		state = m.State()
	}
	for _, p := range state.Set.Packages {
		fmt.Println(p.Name, "from", state.Policies[p.Source].Commit.Hash[:7], state.Policies[p.Source].Current)
	}
	cancel()
	fmt.Println(<-done)
	// Output:
	// team from 3cbb09d true
	// <nil>
}
