module dunlin/clients/grafana

go 1.22

require github.com/mediocregopher/radix/v3 v3.8.1

require golang.org/x/xerrors v0.0.0-20191011141410-1b5146add898 // indirect
