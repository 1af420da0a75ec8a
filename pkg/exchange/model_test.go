package exchange_test

import "federator.dev/federator/test/kube/tcpproxy"

var (
	pass      = tcpproxy.Mode{}
	cut       = tcpproxy.Mode{State: tcpproxy.Cut}
	blackHole = tcpproxy.Mode{State: tcpproxy.BlackHole}
)
