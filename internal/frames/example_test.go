package frames_test

import (
	"fmt"
	"os"
	"path/filepath"

	"federator.dev/federator/internal/frames"
)

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "file")
	w, err := frames.Create(path, nil, []byte("the header"), frames.NewSalt(), "federator example v1")
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Add('x', 1, []byte("one"))
	fmt.Println(w.Flush())
	w.Close()

	f, err := os.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	r := frames.NewReader(f)
	for range 2 {
		fr, err := r.Next()
		fmt.Printf("%c %d %q %v\n", fr.Kind, fr.Revision, fr.Payload, err)
	}
	// Output:
	// <nil>
	// H 0 "the header" <nil>
	// x 1 "one" <nil>
}
