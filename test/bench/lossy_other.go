//go:build !linux

package main

import (
	"context"
	"errors"
)

var errLossy = errors.New("a lossy link needs Linux")

func agentLossy(context.Context, *bench) ([]row, error) { return nil, errLossy }

func lossyFarEnd(context.Context, string, int) (figures, error) { return nil, errLossy }
