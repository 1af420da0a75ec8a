package clusterinformers

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// trouble is what an error of a request to a member means for who made it.
type trouble int

const (
	broken    trouble = iota // the connection failed: report it, wait, go on
	busy                     // the member cannot at the moment: back off, go on
	denied                   // the credentials are not accepted: report it, wait
	forbidden                // this kind is not allowed
	absent                   // this kind is not served
	expired                  // the resourceVersion is too old: list again
	unable                   // the member does not understand this way of asking
)

func classify(err error) trouble {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return broken
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return denied
	case apierrors.IsForbidden(err):
		return forbidden
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return absent
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), tooLarge(err):
		return expired
	case apierrors.IsNotAcceptable(err), apierrors.IsBadRequest(err), apierrors.IsInvalid(err):
		return unable
	}
	return busy
}

// tooLarge reports the answer of a server that has not reached the
// resourceVersion yet, as after a restore.
func tooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// ended reports whether an error is of a request that we have given up ourselves.
func ended(err error) bool { return errors.Is(err, context.Canceled) }
