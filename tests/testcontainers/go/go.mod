module dunlin/testcontainers

go 1.24.0

require (
	github.com/redis/go-redis/v9 v9.14.0
	github.com/testcontainers/testcontainers-go/modules/redis v0.39.0
	github.com/testcontainers/testcontainers-go/modules/valkey v0.39.0
)
