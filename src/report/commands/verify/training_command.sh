# Fill in how you start your training; the space has no dstune.training_command. Of each
# run, $CONFIG is the DeepSpeed configuration, $NUM_NODES and $NUM_GPUS (of a node) the
# group:
#   TRAINING_COMMAND='deepspeed --num_nodes $NUM_NODES --num_gpus $NUM_GPUS train.py --deepspeed_config "$CONFIG"'
TRAINING_COMMAND=${TRAINING_COMMAND:-}
if [[ -z $TRAINING_COMMAND ]]; then
  echo "how is your training started? Fill in TRAINING_COMMAND in this script, or give" \
    "dstune.training_command in the space and run dstune-mpi again" >&2
  exit 3
fi
if [[ $TRAINING_COMMAND != *'$CONFIG'* && $TRAINING_COMMAND != *'${CONFIG}'* ]]; then
  echo "TRAINING_COMMAND does not say where the configuration goes: put \$CONFIG there" >&2
  exit 3
fi
