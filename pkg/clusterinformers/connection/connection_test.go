package connection

import (
	"errors"
	"fmt"
	"testing"
)

func TestAsRefusal_FindsWrappedOnes(t *testing.T) {
	r := Refuse(Redirect, "x")
	if got := AsRefusal(fmt.Errorf("a: %w", errors.Join(errors.New("b"), r))); got != r {
		t.Errorf("got %v", got)
	}
	if got := AsRefusal(errors.New("x")); got != nil {
		t.Errorf("got %v", got)
	}
}
