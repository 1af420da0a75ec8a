package clusterinformers

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errorClass is what an error of a request to a member means for who made it.
type errorClass int

const (
	connectionFailed errorClass = iota // the connection failed: report it, wait, continue
	serverBusy                         // the member cannot at the moment: back off, continue
	unauthorized                       // the credentials are not accepted: report it, wait
	forbidden                          // this kind is not allowed
	notServed                          // this kind is not served
	expired                            // the resourceVersion is too old: list again
	unsupported                        // the member does not understand this kind of request
)

func classify(err error) errorClass {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return connectionFailed
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return unauthorized
	case apierrors.IsForbidden(err):
		return forbidden
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return notServed
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), versionTooLarge(err):
		return expired
	case apierrors.IsNotAcceptable(err), apierrors.IsBadRequest(err), apierrors.IsInvalid(err):
		return unsupported
	}
	return serverBusy
}

// versionTooLarge reports the answer of a server that has not reached the
// resourceVersion yet, as after a restore.
func versionTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// canceled reports whether an error is of a request that was canceled here.
func canceled(err error) bool { return errors.Is(err, context.Canceled) }
