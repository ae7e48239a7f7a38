<?php
// Writes and reads keys through the phpredis extension while the cluster changes.

$seeds = explode(',', getenv('SEEDS'));
$until = microtime(true) + (float) getenv('SECONDS');
$operations = $errors = $wrong = 0;
$told = [];

function connect(array $seeds): Redis|RedisCluster {
    if (getenv('ENDPOINT') !== 'single') {
        return new RedisCluster(null, $seeds);
    }
    $redis = new Redis();
    [$host, $port] = explode(':', $seeds[0]);
    $redis->connect($host, (int) $port);
    return $redis;
}

$client = connect($seeds);
while (microtime(true) < $until) {
    $key = 'phpredis:0:' . $operations % 500;
    $value = (string) $operations;
    try {
        if ($client->set($key, $value) !== true) {
            throw new RedisException('SET is refused: ' . $client->getLastError());
        }
        $found = $client->get($key);
        if ($found !== $value) {
            $wrong += 1;
            $told[] = "$key is " . var_export($found, true) . ", not $value";
        }
        $operations += 1;
    } catch (RedisException | RedisClusterException $error) {
        $errors += 1;
        $told[] = get_class($error) . ': ' . $error->getMessage();
    }
}
echo "result $operations $errors $wrong ", implode('; ', array_slice($told, 0, 3)), "\n";
