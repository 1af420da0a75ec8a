package dirlock_test

import (
	"errors"
	"fmt"
	"os"

	"federator.dev/federator/internal/dirlock"
)

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	lock, err := dirlock.Lock(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = dirlock.Lock(dir)
	fmt.Println(dirlock.InUse(dir), errors.Is(err, dirlock.ErrLocked))
	lock.Close()
	fmt.Println(dirlock.InUse(dir))
	// Output:
	// true true
	// false
}
